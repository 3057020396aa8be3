from .toolchain import main

main()
