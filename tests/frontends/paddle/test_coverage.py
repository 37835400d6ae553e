"""Every operator that others convert, and every one that users have asked them for, has a rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frontends.paddle.archive import ARCHIVES, cases, unpacked
from tonnx.frontends.paddle.lower import rules
from tonnx.frontends.paddle.read import schema

# What Paddle2ONNX 2.1.0 has a mapper for (the names in its library), but for builtin.* and control flow.
PIR = """
abs acos arg_max arg_min argsort array_length array_read array_to_tensor array_write_ asin assign assign_out
assign_out_ assign_value atan atan2 batch_norm bicubic_interp bilinear_interp bitwise_and bitwise_not bitwise_or
bitwise_xor bmm cast ceil clip concat conv2d conv2d_transpose conv3d conv3d_transpose cos cosh create_array
cross_entropy_with_softmax cumsum deformable_conv depthwise_conv2d depthwise_conv2d_transpose dequantize_linear dist
dot dropout einsum elementwise_add elementwise_div elementwise_floordiv elementwise_max elementwise_min
elementwise_mod elementwise_mul elementwise_pow elementwise_sub elu embedding empty equal erf exp expand_as
expand_v2 eye fft_r2c flatten_contiguous_range flip floor full full_int_array full_like full_with_tensor gather
gather_nd gaussian gelu greater_equal greater_than grid_sampler group_norm hard_sigmoid hard_swish hardshrink
hardtanh index_put index_sample index_select instance_norm isfinite isinf isnan layer_norm leaky_relu less_equal
less_than linear_interp linspace log log10 log1p log2 log_softmax logical_and logical_not logical_or logical_xor
logsigmoid logsumexp masked_select matmul_v2 max_pool2d_with_index max_pool3d_with_index meshgrid mish
multiclass_nms3 multinomial mv nearest_interp not_equal one_hot p_norm pad pad3d partial_concat partial_sum
pixel_shuffle pool2d pool3d pow prelu print put_along_axis quantize_linear range reciprocal reduce_all reduce_any
reduce_max reduce_mean reduce_min reduce_prod reduce_sum relu relu6 repeat_interleave reshape rnn roi_align roll
round rsqrt scale scatter scatter_nd_add selu set_value set_value_ set_value_with_tensor set_value_with_tensor_
shape shape64 share_data share_data_ sigmoid sign silu sin sinh size slice softmax softplus softshrink softsign
split split_with_num sqrt square squeeze stack strided_slice sum swish take_along_axis tan tanh tanh_shrink
temporal_shift thresholded_relu tile top_k_v2 transpose tril trilinear_interp triu unbind unfold uniform unique
unsqueeze2 unstack where where_index yolo_box
"""
OLD = """
abs acos affine_channel arg_max arg_min argsort asin assign assign_value atan atan2 batch_norm bicubic_interp_v2
bilinear_interp bilinear_interp_v2 bitwise_and bitwise_not bitwise_or bitwise_xor bmm brelu cast ceil clip concat
conv2d conv2d_transpose conv3d cos cosh cumsum data_norm deformable_conv depthwise_conv2d depthwise_conv2d_transpose
dequantize_linear dist dot dropout einsum elementwise_add elementwise_div elementwise_floordiv elementwise_max
elementwise_min elementwise_mod elementwise_mul elementwise_pow elementwise_sub elu empty equal erf exp expand
expand_as_v2 expand_v2 eye fill_any_like fill_constant fill_constant_batch_size_like fill_zeros_like flatten2
flatten_contiguous_range flip floor gather gather_nd gaussian_random gelu greater_equal greater_than grid_sampler
group_norm hard_shrink hard_sigmoid hard_swish index_put index_sample index_select instance_norm layer_norm
leaky_relu less_equal less_than linear_interp_v2 linspace log log10 log1p log2 log_softmax logical_and logical_not
logical_or logical_xor logsigmoid logsumexp lookup_table lookup_table_v2 matmul matmul_v2 max_pool2d_with_index
max_pool3d_with_index mean meshgrid mish mul multiclass_nms3 mv nearest_interp nearest_interp_v2 norm not_equal
one_hot_v2 p_norm pad pad3d partial_concat partial_sum pixel_shuffle pool2d pool3d pow prelu quantize_linear range
reciprocal reduce_all reduce_any reduce_max reduce_mean reduce_min reduce_prod reduce_sum relu relu6
repeat_interleave reshape2 rnn roi_align roll round rsqrt scatter scatter_nd_add selu set_value shape share_data
sigmoid sign silu sin sinh size slice softmax softmax_with_cross_entropy softplus softshrink softsign split sqrt
square squeeze2 stack strided_slice sum swish take_along_axis tan tanh tanh_shrink temporal_shift thresholded_relu
top_k top_k_v2 transpose2 tril_triu trilinear_interp_v2 unbind unfold unique unsqueeze2 unstack where where_index
yolo_box
"""
# The table of its first versions, with opsets from 1 on.
FIRST = """
abs arg_max assign_value batch_norm bilinear_interp box_coder cast clip concat conv2d conv2d_transpose
depthwise_conv2d dropout elementwise_add elementwise_sub elementwise_mul elementwise_div exp fill_constant
fill_any_like flatten2 floor gather hard_sigmoid hard_swish im2sequence instance_norm leaky_relu log matmul mul
multiclass_nms multiclass_nms2 multiclass_nms3 nearest_interp norm pad2d pool2d pow prior_box prelu reciprocal
reduce_mean reduce_max reduce_min reduce_sum relu relu6 reshape2 roi_align softmax scale shape sigmoid slice split
sum squeeze2 swish tanh transpose2 uniform_random_batch_size_like unsqueeze2 yolo_box
"""
ASKED_FOR = """
masked_fill isclose isnan_v2 inverse viterbi_decode prior_box generate_proposals_v2 distribute_fpn_proposals
collect_fpn_proposals fake_quantize_abs_max fake_quantize_range_abs_max fake_quantize_moving_average_abs_max
fake_quantize_dequantize_abs_max fake_quantize_dequantize_moving_average_abs_max fake_channel_wise_quantize_abs_max
fake_channel_wise_quantize_dequantize_abs_max fake_channel_wise_dequantize_max_abs fake_dequantize_max_abs
moving_average_abs_max_scale linear_v2 repeat_interleave index_put deformable_conv deformable_conv_v1 roll einsum
bitwise_not matrix_nms roi_pool psroi_pool anchor_generator density_prior_box box_clip iou_similarity
polygon_box_transform
"""


def _has_rule(name: str) -> bool:
    found = rules.load()
    return found.get(schema.rule_name(f"pd_op.{name}")) is not None or found.get(schema.rule_name(name)) is not None


@pytest.mark.parametrize("names", [PIR, OLD, FIRST, ASKED_FOR], ids=["pir", "old", "first", "asked_for"])
def test_every_operator_has_a_rule(names: str) -> None:
    assert [name for name in names.split() if not _has_rule(name)] == []


def test_every_synonym_leads_to_a_rule() -> None:
    found = rules.load()
    flow = {"select_input", "select_output"}
    assert [old for old, new in schema.OLD.items() if found.get(new.rule) is None and old not in flow] == []


def test_no_fixture_names_a_machine(tmp_path: Path) -> None:
    for kind in ("pir", "old"):
        for name in cases(kind, ARCHIVES[1:]):
            data = unpacked(kind, name, tmp_path).read_bytes()
            assert not any(path in data for path in (b"/work", b"/root", b"/home", b"/tmp", b"site-packages")), name
