"""`lakefold console`: a web page that shows the tables, the log and what committers do. It only reads."""
