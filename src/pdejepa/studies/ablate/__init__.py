"""Does each part of the method help?  Trainings that differ in one part, at equal steps, and their tables."""
