-- How that scratch is, as its agent has said it, JSON: the last change, and where something of it is kept. NULL where nothing was said.
ALTER TABLE sessions ADD COLUMN scratch_state TEXT;
