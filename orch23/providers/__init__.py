"""One vendor of models a file, behind one method."""
