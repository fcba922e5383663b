"""What every command needs around the mathematics: home directory, child processes, screen."""
