"""Words in, calls, words out: the command line, one file per command or family of commands."""
