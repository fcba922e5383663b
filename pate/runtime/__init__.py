"""Infrastructure of all commands: home directory, child processes, screen."""
