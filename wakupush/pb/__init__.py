"""The modules that protoc makes of ``proto/``; `make proto` writes them."""
