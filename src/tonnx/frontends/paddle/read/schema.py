"""Old operators as PIR knows them: ONE table of synonyms.

A line is the old name, the name of the rule, and what else has another name: ``old=new`` for slots and attributes, and
after ``>`` the output slots in the order of PIR's results where there is more than one. ``{a,b}`` in the old name makes
a line for each, and ``{}`` in that of the rule is the same part. Everything else follows from
the habits of both formats: ``X`` is ``x``, ``MaxLenTensor`` is ``max_len_tensor``, attributes keep their names, the
result is ``Out``. Several slots may mean one parameter: a list as one tensor, as tensors side by side, as attribute;
or an attribute for each dtype, of which one is filled.
An operator that has no line here has the same name in both formats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

_TABLE = """
# Arithmetic
{elementwise_add,grad_add} add
{elementwise_sub,minus} subtract
elementwise_mul multiply
elementwise_div divide
elementwise_floordiv floor_divide
elementwise_mod remainder
elementwise_max maximum
elementwise_min minimum
elementwise_{fmax,fmin,heaviside} {}
sum add_n X=inputs
scale scale ScaleTensor=scale
pow pow factor=y FactorTensor=y
round round_old
increment increment step=value
matmul matmul_with_alpha transpose_X=transpose_x transpose_Y=transpose_y
matmul_v2 matmul trans_x=transpose_x trans_y=transpose_y
{isfinite,isinf,isnan}_v2 {}
atan2 atan2 X1=x X2=y
{isclose,allclose} {} Input=x Other=y
cross cross dim=axis
size numel Input=x

# Activations
hard_shrink hardshrink
hard_sigmoid hardsigmoid
hard_swish hardswish
brelu hardtanh
softshrink softshrink lambda=threshold
mish mish threshold=lambda_
leaky_relu leaky_relu alpha=negative_slope
dropout dropout dropout_prob=p Seed=seed_tensor > Out Mask
label_smooth label_smooth X=label

# Reductions
reduce_sum sum dim=axis keep_dim=keepdim out_dtype=dtype
reduce_{mean,max,min,amax,amin,prod} {} dim=axis keep_dim=keepdim
reduce_{all,any} {} dim=axis keep_dim=keepdim AxisTensor=axis AxisTensorList=axis
mean mean_all
frobenius_norm frobenius_norm dim=axis keep_dim=keepdim
arg_{max,min} arg{}
norm norm > Out Norm
{cummax,cummin} {} > out indices
top_k topk_v1 > Out Indices
top_k_v2 topk > Out Indices
{argsort,kthvalue,mode} {} > Out Indices

# Shapes
reshape{,2} reshape ShapeTensor=shape > Out
transpose{,2} transpose axis=perm > Out
flatten{,2} flatten_at > Out
flatten_contiguous_range flatten > Out
squeeze{,2} squeeze axes=axis > Out
unsqueeze{,2} unsqueeze axes=axis AxesTensor=axis AxesTensorList=axis > Out
concat concat AxisTensor=axis
split split_old AxisTensor=axis SectionsTensorList=sections
expand tile expand_times=repeat_times ExpandTimes=repeat_times expand_times_tensor=repeat_times
expand_v2 expand expand_shapes_tensor=shape
expand_as expand_as target_tensor=y
expand_as_v2 expand_as
tile tile repeat_times_tensor=repeat_times
roll roll ShiftsTensor=shifts
repeat_interleave repeat_interleave dim=axis
meshgrid meshgrid X=inputs
{trace,diagonal} {} Input=x
diag_v2 diag
crop_tensor crop ShapeTensor=shape OffsetsTensor=offsets
broadcast_tensors broadcast_tensors X=input

# Reading and writing by index
slice slice StartsTensor=starts StartsTensorList=starts EndsTensor=ends EndsTensorList=ends
strided_slice strided_slice Input=x StartsTensor=starts StartsTensorList=starts EndsTensor=ends EndsTensorList=ends \
StridesTensor=strides StridesTensorList=strides
set_value set_value Input=x StartsTensorList=starts EndsTensorList=ends StepsTensorList=steps \
bool_values=values fp32_values=values fp64_values=values int32_values=values int64_values=values
index_select index_select dim=axis
take_along_axis take_along_axis Input=arr Index=indices > Result
put_along_axis put_along_axis Input=arr Index=indices Value=values > Result
scatter scatter Ids=index
where_index nonzero
lookup_table lookup_table_v1 Ids=x W=weight
lookup_table_v2 embedding Ids=x W=weight
one_hot one_hot_v1 depth=num_classes depth_tensor=num_classes
one_hot_v2 one_hot depth=num_classes depth_tensor=num_classes
unique unique > Out Indices Index Counts
shard_index shard_index X=input
multiplex multiplex X=inputs Ids=index
sequence_mask sequence_mask MaxLenTensor=maxlen > Y

# Arrays and recurrence
write_to_array array_write
read_from_array array_read X=array
lod_array_length array_length
tensor_array_to_tensor array_to_tensor > Out OutIndex
array_pop array_pop X=input
rnn rnn Input=x DropoutState=dropout_state_in > Out DropoutState State Reserve

# Made from nothing
fill_constant fill_constant ShapeTensor=shape ShapeTensorList=shape
fill_any_like full_like
fill_zeros_like zeros_like
fill_constant_batch_size_like full_batch_size_like
assign_value assign_value bool_values=values fp32_values=values fp64_values=values int8_values=values \
int32_values=values int64_values=values
range arange
linspace linspace Num=number
{empty,randint} {} ShapeTensor=shape ShapeTensorList=shape
{uniform,gaussian}_random {} ShapeTensor=shape ShapeTensorList=shape
cast cast out_dtype=dtype
share_data assign

# Convolution, pooling, normalisation, pictures
{conv2d,depthwise_conv2d,conv3d} {} Bias=bias_tensor ResidualData=residual
{conv2d,depthwise_conv2d,conv3d}_transpose {}_transpose Input=x
{pool2d,pool3d} {} ksize=kernel_size
{max_pool2d,max_pool3d}_with_index {}_with_index ksize=kernel_size > Out Mask
{batch_norm,sync_batch_norm} batch_norm data_layout=data_format > Y
layer_norm layer_norm > Y Mean Variance
group_norm group_norm data_layout=data_format > Y Mean Variance
pad3d pad3d value=pad_value
grid_sampler grid_sample
affine_grid affine_grid Theta=input > Output
{nearest,bilinear}_interp {}_interp_v1 Scale=scale_tensor data_layout=data_format
{linear,trilinear,bicubic}_interp {}_interp Scale=scale_tensor data_layout=data_format
{linear,nearest,bilinear,bicubic,trilinear}_interp_v2 {}_interp Scale=scale_tensor data_layout=data_format
deformable_conv{,_v1} deformable_conv Input=x > Output
unpool unpool paddings=padding

# Detection
yolo_box yolo_box > Boxes Scores
box_coder box_coder > OutputBox
{prior_box,density_prior_box} {} > Boxes Variances
anchor_generator anchor_generator > Anchors Variances
multiclass_nms2 multiclass_nms2 > Out Index
multiclass_nms3 multiclass_nms3 > Out Index NmsRoisNum
matrix_nms matrix_nms > Out Index RoisNum
nms nms > KeepBoxesIdxs
roi_pool roi_pool ROIs=boxes RoisNum=boxes_num > Out Argmax
{roi_align,psroi_pool} {} ROIs=boxes RoisNum=boxes_num
generate_proposals generate_proposals_v1 pre_nms_topN=pre_nms_top_n post_nms_topN=post_nms_top_n \
> RpnRois RpnRoiProbs RpnRoisNum
generate_proposals_v2 generate_proposals pre_nms_topN=pre_nms_top_n post_nms_topN=post_nms_top_n \
> RpnRois RpnRoiProbs RpnRoisNum
distribute_fpn_proposals distribute_fpn_proposals > MultiFpnRois MultiLevelRoIsNum RestoreIndex
collect_fpn_proposals collect_fpn_proposals MultiLevelRoIsNum=multi_level_rois_num post_nms_topN=post_nms_topn \
> FpnRois RoisNum
viterbi_decode viterbi_decode Input=potentials Transition=transition_params Length=lengths > Scores Path

crf_decoding crf_decoding > ViterbiPath
ctc_align ctc_align > Output OutputLength

# Linear algebra
inverse inverse Input=x > Output
determinant det Input=x
slogdeterminant slogdet Input=x
bilinear_tensor_product bilinear

# Losses
softmax_with_cross_entropy cross_entropy_with_softmax Logits=input > Softmax Loss
bce_loss bce_loss X=input
huber_loss huber_loss X=input Y=label > Out Residual
kldiv_loss kldiv_loss Target=label > Loss
log_loss log_loss Predicted=input Labels=label > Loss
nll_loss nll_loss X=input > Out
hinge_loss hinge_loss > Loss

# Quantisation
fake_{quantize,quantize_dequantize,channel_wise_quantize,channel_wise_quantize_dequantize}_abs_max fake_{}_abs_max \
> Out OutScale
fake_{quantize_range,quantize_moving_average,quantize_dequantize_moving_average}_abs_max fake_{}_abs_max > Out OutScale

# Random, and what is rare
histogram histogram X=input
complex complex X=real Y=imag
print print In=x
unique_consecutive unique_consecutive > Out Index Counts
"""


@dataclass(frozen=True)
class Synonyms:
    """What an old operator is called now."""

    rule: str
    renamed: dict[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()

    def parameter(self, old: str) -> str:
        """The rule's name for a slot or attribute."""
        return self.renamed.get(old) or _snake(old)


@cache
def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if name[:1].isupper() else name


def _parse(table: str) -> dict[str, Synonyms]:
    parsed = {}
    for line in table.replace("\\\n", "").splitlines():
        words, _, outputs = line.partition(">")
        old, *rest = words.split() or ["#"]
        start, _, more = old.partition("{")
        parts, _, end = more.partition("}")
        for part in parts.split(",") if old != "#" else ():
            name = f"{start}{part}{end}"
            assert name not in parsed, name
            renamed = dict(word.split("=") for word in rest[1:])
            parsed[name] = Synonyms(rest[0].replace("{}", part), renamed, tuple(outputs.split()))
    return parsed


OLD = _parse(_TABLE)


def synonyms(old: str) -> Synonyms:
    """What the old operator ``old`` is called now."""
    return OLD.get(old) or Synonyms(old)


def rule_name(name: str) -> str:
    """The name under which the rule of an operator of either format is registered."""
    if "." not in name:
        return synonyms(name).rule
    dialect, _, rest = name.partition(".")
    plain = rest[:-1] if rest.endswith("_") else rest  # in place: the same formula
    return plain if dialect == "pd_op" else f"{dialect}.{plain}"
