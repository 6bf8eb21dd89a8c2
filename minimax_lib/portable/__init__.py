"""The environments in the forms of other libraries, each of which is imported only when it is asked for."""
