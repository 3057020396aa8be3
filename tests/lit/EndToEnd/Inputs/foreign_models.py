"""Small models of the families that can be imported, made by transformers with random weights."""
import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
torch.manual_seed(12)  # the constructors of transformers draw weights, too


def sizes(d_model, layers, heads, ffn, vocabulary):
    return dict(d_model=d_model, encoder_layers=layers[0], decoder_layers=layers[1], encoder_attention_heads=heads, decoder_attention_heads=heads,
                encoder_ffn_dim=ffn, decoder_ffn_dim=ffn, vocab_size=vocabulary, max_position_embeddings=32)


SIZES = sizes(24, (2, 1), 3, 40, 61)


def randomize(model, seed):
    """Adds random numbers to the weights, large enough for every part of the model to affect its logits. The embedding of the pad
    token stays zero, as in every trained model."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if not name.endswith("final_logits_bias") and ("embed_positions.weights" in name or not tensor.requires_grad):
                continue  # computed
            spread = 0.4 if tensor.dim() > 1 else 0.2
            tensor.add_(spread * torch.randn(tensor.shape, generator=generator))
            if name.endswith("Attention.q.weight"):
                tensor.div_(model.config.d_kv ** 0.5)  # a T5 does not scale its scores
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias[0, model.config.eos_token_id] += 3  # so that some sentences end
        pad = model.config.pad_token_id
        for embedding in {model.get_input_embeddings(), model.get_decoder().embed_tokens}:
            embedding.weight[pad] = 0
    return model.eval()


def of_unit_logits(model):
    """Scales the last norm so that the standard deviation of the logits is about 1."""
    generator = torch.Generator().manual_seed(3)
    norm = [module for name, module in model.get_decoder().named_modules() if name.endswith("norm")][-1]
    source, target = (torch.randint(model.get_output_embeddings().weight.shape[0], (4, 16), generator=generator) for _ in range(2))
    with torch.no_grad():
        size = model(input_ids=source, decoder_input_ids=target).logits.std()
        for tensor in norm.parameters():
            tensor.div_(size)
    return model


def ragged(generator, vocabulary, special, pad, start=None):
    lengths = [7, 1, 12, 4]
    allowed = [t for t in range(vocabulary) if t not in special]
    rows = torch.full((len(lengths), max(lengths)), pad)
    for row, length in zip(rows, lengths):
        row[:length] = torch.tensor([allowed[i] for i in torch.randint(len(allowed), (length,), generator=generator)])
        if start is not None:
            row[0] = start
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    return rows, mask


def marian(**options):
    options = SIZES | dict(pad_token_id=60, decoder_start_token_id=60, eos_token_id=0, scale_embedding=True,
                           activation_function="swish") | options
    return transformers.MarianMTModel(transformers.MarianConfig(**options))


def bart(kind, **options):
    model = getattr(transformers, kind + "ForConditionalGeneration")
    return model(getattr(transformers, kind + "Config")(**SIZES | options))


def t5(kind, options=(), **sizes):
    sizes = dict(vocab_size=61, d_model=24, d_kv=10, d_ff=40, num_layers=2, num_decoder_layers=2, num_heads=3, relative_attention_num_buckets=8,
                 relative_attention_max_distance=16, decoder_start_token_id=0) | sizes
    config = getattr(transformers, kind + "Config")(**sizes, **dict(options))
    return getattr(transformers, kind + "ForConditionalGeneration")(config)


def untied(model):
    """Gives the model an output weight of its own, as in T5 1.1."""
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model
