"""What people see: events, tasks and tables as text on a terminal."""
