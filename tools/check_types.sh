#!/bin/sh
# mypy does not know setup.py's package_dir: show it the folders under the names they install as.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
tree=$root/build/types
rm -rf "$tree"
mkdir -p "$tree/neuron_dist"
ln -s "$root"/neuron_dist/* "$root/topology" "$root/collectives" "$root/launcher" "$tree/neuron_dist"
cd "$tree"
exec mypy --config-file "$root/pyproject.toml" --cache-dir "$root/.mypy_cache" \
    --python-executable "$root/.venv/bin/python" --package neuron_dist
