"""Pipeline parallelism: the model cut into stages, run by a schedule of PyTorch."""
