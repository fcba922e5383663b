"""Version 1 of the messages: vote.proto and student.proto, and the code generated from them."""
