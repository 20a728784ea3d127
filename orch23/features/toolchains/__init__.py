"""Programs of toolchains that are installed outside of the system directories, such as cargo from rustup."""
