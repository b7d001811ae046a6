// The limit of collectives on this host: processes that share their buffers, read and write what the collective
// must, and meet at a barrier before and after. Built and loaded by bare_loop.py.

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

typedef struct {
  _Alignas(64) atomic_uint arrived;
  _Alignas(64) atomic_uint complete;
} barrier_t;

static void meet(barrier_t* barrier, unsigned ranks) {
  const unsigned generation = atomic_load(&barrier->complete);
  if (atomic_fetch_add(&barrier->arrived, 1) + 1 == ranks) {
    atomic_store(&barrier->arrived, 0);
    atomic_store(&barrier->complete, generation + 1);
    return;
  }
  for (unsigned polls = 0; atomic_load(&barrier->complete) == generation; ++polls) {
    if (polls > 1000) sched_yield();
  }
}

// Sums floats [begin, end) of all inputs in the order of ranks, a block in cache at a time, into `targets` outputs.
static void sum(float** inputs, float** outputs, int ranks, int targets, size_t begin, size_t end, size_t shift) {
  enum { kBlock = 4096 };
  float block[kBlock];
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t count = end - at < kBlock ? end - at : kBlock;
    for (size_t i = 0; i < count; ++i) block[i] = inputs[0][at + i] + inputs[1][at + i];
    for (int rank = 2; rank < ranks; ++rank) {
      for (size_t i = 0; i < count; ++i) block[i] += inputs[rank][at + i];
    }
    for (int target = 0; target < targets; ++target) memcpy(outputs[target] + at - shift, block, count * sizeof *block);
  }
}

void all_reduce(barrier_t* barrier, float** inputs, float** outputs, int rank, int ranks, size_t count) {
  meet(barrier, ranks);
  sum(inputs, outputs, ranks, ranks, count * rank / ranks, count * (rank + 1) / ranks, 0);
  meet(barrier, ranks);
}

void reduce_scatter(barrier_t* barrier, float** inputs, float** outputs, int rank, int ranks, size_t count) {
  const size_t part = count / ranks;
  meet(barrier, ranks);
  sum(inputs, outputs + rank, ranks, 1, part * rank, part * (rank + 1), part * rank);
  meet(barrier, ranks);
}

void all_gather(barrier_t* barrier, float** inputs, float** outputs, int rank, int ranks, size_t count) {
  const size_t part = count / ranks;
  meet(barrier, ranks);
  for (int k = 0; k < ranks; ++k) {
    const int from = (rank + k) % ranks;
    memcpy(outputs[rank] + part * from, inputs[from], part * sizeof(float));
  }
  meet(barrier, ranks);
}

void all_to_all(barrier_t* barrier, float** inputs, float** outputs, int rank, int ranks, size_t count) {
  const size_t part = count / ranks;
  meet(barrier, ranks);
  for (int k = 0; k < ranks; ++k) {
    const int from = (rank + k) % ranks;
    memcpy(outputs[rank] + part * from, inputs[from] + part * rank, part * sizeof(float));
  }
  meet(barrier, ranks);
}
