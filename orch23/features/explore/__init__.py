"""The feature `explore`: a map of the files of a repository, ranked by the text of a task."""
