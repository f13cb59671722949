-- Whether files of a space are spread by its hint: none (there is nothing to apply), wanted, applied, or not_applied with what was said.
-- What became of the hints of before was not kept, so they are applied once more.
ALTER TABLE spaces ADD COLUMN hint_state TEXT NOT NULL DEFAULT 'none';
ALTER TABLE spaces ADD COLUMN hint_said TEXT;
UPDATE spaces SET hint_state = 'wanted' WHERE hint <> 'usual' AND state <> 'gone';
