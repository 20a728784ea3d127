"""The tiers of the sandbox: bubblewrap, Landlock with seccomp, or a refusal."""
