"""Trainers: labels and public inputs in, a :class:`~student.trainers.base.Student` out."""
