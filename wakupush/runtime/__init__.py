"""What every process needs to run, whatever it does; nothing here imports anything else of ours."""
