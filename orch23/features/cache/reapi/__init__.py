"""Actions and results as messages of Bazel's Remote Execution API v2 (REAPI), without I/O."""
