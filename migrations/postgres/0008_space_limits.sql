-- Whether the limit of a space is held: none (the platform sets none), wanted, held, or not_held with what was said.
ALTER TABLE spaces ADD COLUMN limit_state TEXT NOT NULL DEFAULT 'none';
ALTER TABLE spaces ADD COLUMN limit_said TEXT;
