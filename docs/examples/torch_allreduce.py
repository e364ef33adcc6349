"""An ordinary PyTorch program: nothing in it knows of dlaunch.

    dlaunch --nproc_per_node 4 torch_allreduce.py
"""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.tensor([rank + 1.0, 10.0 * (rank + 1)])
    dist.all_reduce(tensor)
    print(f"rank {rank} of {size}: {tensor.tolist()}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
