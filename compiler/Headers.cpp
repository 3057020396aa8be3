// The file that precompiles the headers that the stages share.
