-- The fast scratch that a session or a run asked for, JSON; NULL where it asked for none.
ALTER TABLE sessions ADD COLUMN scratch TEXT;
