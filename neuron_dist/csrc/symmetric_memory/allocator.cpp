#include <map>
#include <mutex>

#include "csrc/device/allocator.h"
#include "csrc/device/process.h"
#include "csrc/symmetric_memory/memory.h"

namespace neuron {

namespace {

using c10d::symmetric_memory::SymmetricMemory;

// What torch.distributed._symmetric_memory allocates on the device.
class Allocator final : public c10d::symmetric_memory::SymmetricMemoryAllocator {
 public:
  void* alloc(size_t size, int device_idx, const std::optional<std::string>& group_name) override {
    check_not_forked();
    const auto device = device_idx < 0 ? current_device() : static_cast<c10::DeviceIndex>(device_idx);
    auto made = std::make_shared<Allocation>(device, size, group_name);
    std::lock_guard lock(mutex_);
    entries_[made->base] = {made, {}};
    return made->base;
  }

  void free(void* address) override {
    Entry last; // may release memory, so not under the lock
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(static_cast<char*>(address));
    if (found == entries_.end()) return;
    last = std::move(found->second);
    entries_.erase(found);
  }

  size_t get_alloc_size(void* address) override {
    std::lock_guard lock(mutex_);
    Entry* entry = find(address);
    TORCH_CHECK_VALUE(entry, "get_alloc_size: memory that symmetric_memory did not allocate");
    return entry->memory->bytes;
  }

  c10::intrusive_ptr<SymmetricMemory> rendezvous(void* address, const std::optional<std::string>& group) override {
    std::shared_ptr<Allocation> memory;
    std::string name;
    {
      std::lock_guard lock(mutex_);
      Entry* entry = find(address);
      if (!entry) return nullptr; // an ordinary tensor: torch's callers ask for this
      memory = entry->memory;
      TORCH_CHECK_VALUE(
          group || memory->group, "rendezvous: name a group, here or where the symmetric memory is allocated");
      name = group ? *group : *memory->group;
      if (const auto known = entry->handles.find({name, address}); known != entry->handles.end()) return known->second;
    }
    const size_t offset = static_cast<char*>(address) - memory->base;
    auto handle = c10::make_intrusive<NeuronSymmetricMemory>(memory, offset, name); // waits for the other ranks
    std::lock_guard lock(mutex_);
    if (Entry* entry = find(address)) entry->handles[{name, address}] = handle;
    return handle;
  }

  bool has_multicast_support(int) override { return false; }
  c10::DeviceType supported_device_type() override { return c10::DeviceType::PrivateUse1; }
  std::string name() override { return "NEURON"; }
  bool has_allocation(void* address) override {
    std::lock_guard lock(mutex_);
    return find(address);
  }

 private:
  struct Entry {
    std::shared_ptr<Allocation> memory;
    std::map<std::pair<std::string, void*>, c10::intrusive_ptr<SymmetricMemory>> handles; // by group and address
  };

  Entry* find(void* address) {
    auto after = entries_.upper_bound(static_cast<char*>(address));
    if (after == entries_.begin()) return nullptr;
    auto& entry = std::prev(after)->second;
    return entry.memory->contains(address) ? &entry : nullptr;
  }

  std::mutex mutex_;
  std::map<char*, Entry> entries_; // by the address of the block
};

const bool registered = [] {
  const auto allocator = c10::make_intrusive<Allocator>();
  c10d::symmetric_memory::register_allocator(c10::DeviceType::PrivateUse1, allocator);
  c10d::symmetric_memory::register_availability("NEURON", allocator);
  return true;
}();

} // namespace

} // namespace neuron
