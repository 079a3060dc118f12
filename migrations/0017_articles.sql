-- An article of a few kilobytes stays in its row, compressed: it is written once and read once, by key, so rows may be wide,
-- and to put it into a table beside costs two more writes and their index.
ALTER TABLE articles SET (toast_tuple_target = 8160);
