"""What runs as a process of its own for one piece of work and then ends: `python -m stoker.jobs.<name>`."""
