//! The scheduler port over slurmrestd and over the SLURM command line
