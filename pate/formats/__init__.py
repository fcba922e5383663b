"""Files and texts that cross between roles: labels, statements, enrolment, schemas."""
