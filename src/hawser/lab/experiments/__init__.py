"""The experiments, one module each: `run` conducts it and says what it found."""
