"""The flow: the Faust app, delivery, outbox, timers, importers and the command line."""
