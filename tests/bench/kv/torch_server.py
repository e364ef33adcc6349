"""PyTorch's own store server, for comparison: torch_server.py PORT."""
import sys
import threading
from datetime import timedelta

from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", int(sys.argv[1]), None, True, timedelta(seconds=60), wait_for_workers=False)
print("ready", flush=True)
threading.Event().wait()
