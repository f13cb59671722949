"""``python -m eirene_kernel -f FILE``: what the kernel spec starts."""

from eirene_kernel import EireneKernelApp

EireneKernelApp.launch_instance()
