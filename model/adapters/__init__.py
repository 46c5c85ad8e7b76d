"""One adapter a file; engines are imported only by the file that maps them."""
