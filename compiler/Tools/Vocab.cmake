# `xfc vocab` needs SentencePiece but not LLVM.
add_library(XFCVocab STATIC ${CMAKE_CURRENT_LIST_DIR}/VocabCommand.cpp)
target_include_directories(XFCVocab PUBLIC ${PROJECT_SOURCE_DIR}/runtime)
target_link_libraries(XFCVocab PUBLIC xfc_support PRIVATE xfc_tokenizers sentencepiece_train)
