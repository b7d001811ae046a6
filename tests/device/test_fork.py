"""A child forked after the device came into use is refused, and cannot harm its parent."""

from tests.device.helpers import output_of

FORK = """
    import os, torch
    tensor = torch.zeros(4, device="neuron")
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            {act}
            answer = "no error"
        except BaseException as error:
            answer = f"{{type(error).__name__}}: {{error}}"
        os.write(write, answer.encode())
        os._exit(0)
    os.wait()
    print(os.read(read, 4096).decode())
    assert tensor.tolist() == [0, 0, 0, 0]
"""
REFUSED = "RuntimeError: Cannot re-initialize neuron in forked subprocess."


def in_child(act: str) -> str:
    return output_of(FORK.format(act=act))


def test_writing_is_refused():
    assert in_child("tensor.fill_(1)").startswith(REFUSED)


def test_copying_is_refused():
    assert in_child("tensor.copy_(torch.ones(4))").startswith(REFUSED)
    assert in_child("tensor.cpu()").startswith(REFUSED)


def test_new_tensors_are_refused():
    assert in_child("torch.zeros(4, device='neuron')").startswith(REFUSED)
    assert in_child("torch.rand(4, device='neuron')").startswith(REFUSED)


def test_the_child_knows():
    assert (
        in_child("assert torch.neuron._is_in_bad_fork() and not torch.neuron.is_initialized()") == "no error"
    )


def test_host_work_goes_on():
    assert in_child("del tensor; torch.manual_seed(1); torch.ones(1000, 1000).sum()") == "no error"


def test_a_child_forked_before_use_may_use_the_device():
    code = """
        import os, torch
        if os.fork() == 0:
            os._exit(int(torch.ones(3, device="neuron").sum().item()))
        print(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    assert output_of(code) == "3"
