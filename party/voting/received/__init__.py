"""What a server sends in pieces: public sets, and the encoders of their inputs."""
