"""What CodeSDK costs, measured against what the machine can do in the same run."""
