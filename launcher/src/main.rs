//! The only privileged process: signs SLURM tokens and acts as the person

fn main() {}
