// The file that precompiles the headers of JSON.
