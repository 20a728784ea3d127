"""The provider `local`: a small model on this machine, and the command `model`, which installs its weights."""
