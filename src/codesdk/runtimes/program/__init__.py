"""What runtimes that are programs share: finding, starting, talking to and ending a child process."""
