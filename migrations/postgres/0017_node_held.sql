-- What jobs on a node are held to by their control groups, which may as well only count; NULL where that could not be told.
ALTER TABLE node_confinement ADD COLUMN memory_held BOOLEAN;
ALTER TABLE node_confinement ADD COLUMN cpus_held BOOLEAN;
UPDATE node_confinement SET memory_held = FALSE, cpus_held = FALSE WHERE confined_by = 'none';
