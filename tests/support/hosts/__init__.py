"""Hosts for tests: network namespaces with links between them that can be cut and worsened."""
