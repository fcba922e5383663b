"""Protocol messages: the .proto files, their generated code, and the checks on arrival."""
