"""What torch.distributed trains, on real ranks, against one process that sees the whole batch on the CPU."""
