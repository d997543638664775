"""`python -m ninfer`: hands over to the command line, nothing else."""

from ninfer.cli import main

if __name__ == "__main__":
    main()
