"""Hosts for tests: network namespaces with links between them that can fail and degrade."""
