"""The contenders on whole blocks (block_problem.py), a module each, as in peers."""
