// The file that precompiles the headers that tests share.
